"""The names of spans and attributes: OpenTelemetry's where it has one, ours below `guidedmodel.`.

Constants of our own, because the conventions packages rename and move theirs between releases, and dashboards
and alerts hold on to names. No attribute ever carries prompt, output or schema text.
"""

from typing import Final

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.40.0"
SCOPE: Final = "guided_sidecar"

# Spans. The HTTP root's name is its method and route, as "POST /v1/completions".
GRAMMAR_PREPARE: Final = "grammar.prepare"
GRAMMAR_COMPILE: Final = "grammar.compile"
GRAMMAR_PROOF: Final = "grammar.proof"
GRAMMAR_LOAD: Final = "grammar.load"
GUIDED_DECODE: Final = "guided.decode"
# An event of grammar.compile.
WORKER_LOST: Final = "grammar.worker.lost"

ERROR_TYPE: Final = "error.type"  # an error code of ours, or the HTTP status
CANCELLED: Final = "cancelled"  # as error.type: the client has gone, and nobody is told a code

# Ours. Durations are in seconds, as everywhere in OpenTelemetry.
GRAMMAR_KIND: Final = "guidedmodel.grammar.kind"
GRAMMAR_KEY: Final = "guidedmodel.grammar.key"
GRAMMAR_BACKEND: Final = "guidedmodel.grammar.backend"
GRAMMAR_CACHE: Final = "guidedmodel.grammar.cache"  # hit, joined (another request's) or miss
GRAMMAR_UNENFORCED: Final = "guidedmodel.grammar.unenforced"  # keywords that were allowed to be, with commas
GRAMMAR_BYTES: Final = "guidedmodel.grammar.size"
GRAMMAR_COMPILE_DURATION: Final = "guidedmodel.grammar.compile.duration"
GRAMMAR_PROOF_DURATION: Final = "guidedmodel.grammar.proof.duration"
RANK: Final = "guidedmodel.rank"
WORKER_LOSS: Final = "guidedmodel.worker.loss"  # why: crashed, idle, template, memory, deadline or cancelled
