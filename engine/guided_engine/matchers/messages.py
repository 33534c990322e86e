"""What a rank and the process of its matchers say to each other, as msgpack.

Rank to process, some at a time: `Begin` for each step that has a sequence of ours, `Sampled` once tokens are
known, and `Ask`, which alone is answered, with an `Answer`. `Restore` comes first where a process takes over.
"""

from typing import Final

import msgspec
import numpy as np

from guided_contract.wire import Failed, Load, Loaded, Ticket, Unload


class Arrive(msgspec.Struct, array_like=True):
    """A request that has arrived on the rank, or come back to it; see ranks.step.Arrival.

    Outputs of steps before `since_step` are not its any more. `takes_drafts`: whether all of its logits
    processors do, None without any. `failure`: why it has ended on this rank, "" if it has not.
    `prompt_tokens` are sent only where something reads them. `reasoned` is how many tokens it had generated
    before its grammar's first, None while it reasons, or was not seen to have done.
    """

    request_id: str
    number: int  # of this rank's requests, from 1
    since_step: int
    prompt_tokens: list[int]
    prompt_length: int
    known_tokens: list[int] | None
    is_guided: bool
    ticket: Ticket | None
    stop_tokens: list[int]
    max_tokens: int | None
    takes_drafts: bool | None
    failure: str = ""
    reasoned: int | None = None


class Tokens(msgspec.Struct, array_like=True):
    """What a step sampled: see ranks.step.SampledTokens; a count is 0 where nothing counts any more."""

    step: int
    request_ids: list[str]
    tokens: bytes  # [requests, most] int64
    counts: bytes  # [requests] int64

    def rows(self) -> list[list[int]]:
        """Return the tokens of each request."""
        counts = np.frombuffer(self.counts, np.int64).tolist()
        shape = len(counts), len(self.tokens) // max(1, len(self.counts))
        tokens = np.frombuffer(self.tokens, np.int64).reshape(shape).tolist()
        return [row[:count] for row, count in zip(tokens, counts, strict=True)]


class Sampled(msgspec.Struct, array_like=True, tag=True):
    """What earlier steps sampled, in their order."""

    steps: list[Tokens]


class Begin(msgspec.Struct, array_like=True, tag=True):
    """One step, as scheduled; see ranks.step.Plan. `given_up` are sequences that ended on the rank, by code.

    `sampling` are the requests that sample in it, `drafts` theirs; None: as in the step before. `goes_on`:
    whether a request does that was there before. `waited_ns` is how long sampling has waited for this rank's
    masks since it started.
    """

    step: int
    waited_ns: int
    goes_on: bool
    sampling: list[str] | None = None
    drafts: dict[str, list[int]] | None = None
    sampled: list[Tokens] = []
    finished: list[str] = []
    arrivals: list[Arrive] = []
    resumed: dict[str, list[int]] = {}
    given_up: dict[str, str] = {}


class Ask(msgspec.Struct, array_like=True, tag=True):
    """Fill the step's masks into a slot of the shared memory; `drafts` of the last step, by request."""

    number: int  # of this rank's, also its answer's
    slot: int
    request_ids: list[str]
    drafts: list[list[int]]
    given_up: dict[str, str]


class Restore(msgspec.Struct, array_like=True, tag=True):
    """What a process before this one had: grammars, and sequences with what they have generated.

    `is_watched`: the next masks are filled one by one.
    """

    loads: list[Load]
    arrivals: list[Arrive]
    outputs: list[list[int]]
    is_watched: bool


class Answer(msgspec.Struct, array_like=True):
    """A step's masks: see ranks.step.Masks; and which sequences are to end, told once.

    `request_ids` None: as in the answer before. `invalid`: by guided request, how many of its scheduled
    drafts its grammar forbids, or nobody proposed.
    `reasoned`: by those that have stopped reasoning since the last answer, see Arrive.
    """

    number: int
    request_ids: list[str] | None
    rows: int
    acceptable: list[int]
    invalid: dict[str, int]
    ends: list[Failed]
    reasoned: dict[str, int] = {}


Message = Begin | Sampled | Ask | Restore

_encoder = msgspec.msgpack.Encoder()
encode: Final = _encoder.encode
decode: Final = msgspec.msgpack.Decoder(list[Message]).decode
decode_answer: Final = msgspec.msgpack.Decoder(Answer).decode
decode_load: Final = msgspec.msgpack.Decoder(Load | Unload).decode
decode_loaded: Final = msgspec.msgpack.Decoder(Loaded).decode
