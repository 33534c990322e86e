"""Imports of the grammar libraries without torch, which saves each pod 600 MB and the template 8 seconds.

xgrammar imports torch for the type of its masks and for kernels that the sidecar never calls; masks here are
numpy arrays. So for the time of its import `torch` is a module with just those names.
"""

import sys
import types
from typing import Any, Final

_NAMES_AT_IMPORT: Final = ("Tensor", "LongTensor", "FloatTensor")


def without_torch() -> None:
    """Make later imports find no torch, and import xgrammar all the same. For processes without torch."""
    if "torch" in sys.modules:
        return
    blocked: dict[str, Any] = sys.modules
    blocked["torch"] = None  # transformers and tvm_ffi look whether torch is there, and go without it
    import transformers  # noqa: F401, PLC0415 - must come before the stand-in
    import tvm_ffi  # noqa: F401, PLC0415 - likewise

    blocked["torch"] = _stand_in()
    try:
        import xgrammar  # noqa: F401, PLC0415 - the one import that the stand-in is for
    finally:
        blocked["torch"] = None


def _stand_in() -> types.ModuleType:
    module: Any = types.ModuleType("torch")
    for name in _NAMES_AT_IMPORT:
        setattr(module, name, type(name, (), {}))
    module.int32 = "int32"
    module.tensor = lambda *_args, **_kwargs: None
    return module  # type: ignore[no-any-return]  # Any only so that attributes can be set
