"""The names of spans and attributes: OpenTelemetry's where it has one, ours below `guidedmodel.`.

Constants of our own, because the conventions packages rename and move theirs between releases, and dashboards
and alerts hold on to names. No attribute ever carries prompt, output or schema text.
"""

from typing import Final

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.40.0"
SCOPE: Final = "guided_sidecar"

# Spans. The HTTP root's name is its method and route, as "POST /v1/completions".
LLM_REQUEST: Final = "llm_request"  # vLLM's own
GRAMMAR_PREPARE: Final = "grammar.prepare"
GRAMMAR_COMPILE: Final = "grammar.compile"
GRAMMAR_PROOF: Final = "grammar.proof"
GRAMMAR_LOAD: Final = "grammar.load"
GUIDED_DECODE: Final = "guided.decode"
PROCESSOR_FAILURE: Final = "processor.failure"
# An event of grammar.compile.
WORKER_LOST: Final = "grammar.worker.lost"

# HTTP server spans: https://opentelemetry.io/docs/specs/semconv/http/http-spans/ as of SCHEMA_URL.
HTTP_REQUEST_METHOD: Final = "http.request.method"
HTTP_ROUTE: Final = "http.route"
HTTP_RESPONSE_STATUS_CODE: Final = "http.response.status_code"
URL_PATH: Final = "url.path"
URL_SCHEME: Final = "url.scheme"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
ERROR_TYPE: Final = "error.type"  # an error code of ours, or the HTTP status
EXCEPTION_TYPE: Final = "exception.type"
CANCELLED: Final = "cancelled"  # as error.type: the client has gone, and nobody is told a code

# GenAI: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/ as of SCHEMA_URL.
GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"
GEN_AI_PROVIDER_NAME: Final = "gen_ai.provider.name"
GEN_AI_REQUEST_MODEL: Final = "gen_ai.request.model"
GEN_AI_OUTPUT_TYPE: Final = "gen_ai.output.type"
GEN_AI_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
GEN_AI_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
GEN_AI_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
PROVIDER: Final = "vllm"  # none of the conventions' names is a program that everybody runs themselves
# Ours. Durations are in seconds, as everywhere in OpenTelemetry.
STREAM: Final = "guidedmodel.stream"
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
# Of processor.failure: names in the resource, with commas where one cannot be told from others.
PROCESSOR_NAME: Final = "guidedmodel.processor.name"
PROCESSOR_FACTORY: Final = "guidedmodel.processor.factory"
PROCESSOR_TOKEN: Final = "guidedmodel.processor.token"  # noqa: S105 - how many the sequence had generated
# Of guided.decode, beside metrics.DECODE_COUNTS.
DECODE_FILL_MAX: Final = "guidedmodel.decode.fill.max"
DECODE_TAKES_DRAFTS: Final = "guidedmodel.decode.drafts.taken"  # false: its logits processors take none
DECODE_END_REASON: Final = "guidedmodel.decode.end_reason"
