"""Why `limits.models` need not hold for some listed options of vLLM.

A later vLLM's new ones belong to the product's table, or to this one: a test in tests/contract says so.
"""

from typing import Final

# Listed options that by their name, or by what vLLM says of them, might name a repository, folder, file or
# server, and why limits.models need not hold. Those that do: repositories and with_repositories of those.
NO_REPOSITORY: Final = {
    "a file of the pod's, or the text itself: it says how messages become prompts, and runs no code": """
        chat-template
    """,
    "numbers, names and switches of vLLM's own": """
        attention-config eplb-config kernel-config override-generation-config quantization-config
        reasoning-config
    """,
    "values for the template of messages, or for readers of images and videos": """
        default-chat-template-kwargs media-io-kwargs
    """,
    "servers that clients' images may come from": """
        allowed-media-domains
    """,
    "routes of the API": """
        disable-access-log-for-endpoints
    """,
    "one of a few words": """
        chat-template-content-format config-format load-format model-impl moe-backend quantization
        safetensors-load-strategy tokenizer-mode
    """,
    "a number or a switch": """
        cohere-is-reasoning-model enable-ep-weight-filter enable-flash-late-interaction
        enable-tokenizer-info-endpoint language-model-only renderer-num-workers
        safetensors-prefetch-num-threads use-replayssm
    """,
    "which files of the model are left out": """
        ignore-patterns
    """,
}
