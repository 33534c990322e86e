"""What the dashboard shows: rows of panels, each with its queries.

A table, because a dashboard's JSON is nine tenths layout, and its queries are what has to be right: tests run
each of them on real pages (tests/contract/test_metrics.py, tests/e2e/test_run_metrics.py).
"""

from typing import Final, NamedTuple

# What the dashboard's variables choose; a scrape adds both labels (manifests/observability/podmonitor.yaml).
_OF: Final = 'namespace=~"$namespace",model=~"$model"'
# The operator's own labels: the namespace that a scrape adds is the operator's.
_REPLICAS_OF: Final = 'model_namespace=~"$namespace",model=~"$model"'


class Panel(NamedTuple):
    """One graph: its title, its unit in Grafana's words, and each query with its legend."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    about: str = ""


def _metric(name: str, *chosen: str) -> str:
    whole = name if ":" in name else f"guidedmodel_{name}"  # vLLM's are vllm:NAME
    of = () if name.startswith("operator_") else (_OF,)
    return f"{whole}{{{','.join((*of, *chosen))}}}"


def _rate(name: str, *chosen: str) -> str:
    return f"rate({_metric(name, *chosen)}[$__rate_interval])"


def _sum(by: str, expression: str) -> str:
    return f"sum by ({by}) ({expression})"


def _quantiles(name: str, by: str, *chosen: str) -> tuple[tuple[str, str], ...]:
    rate = _rate(f"{name}_bucket", *chosen)
    return tuple(
        (f"histogram_quantile({q}, {_sum(f'{by}, le', rate)})", f"p{q * 100:.0f} {{{{{by}}}}}")
        for q in (0.5, 0.99)
    )


def _ratio(by: str, over: str, under: str, legend: str) -> tuple[tuple[str, str], ...]:
    return ((f"{_sum(by, _rate(over))} / {_sum(by, _rate(under))}", legend),)


_ONCE: Final = 'tp_rank="0"'  # every rank of a tensor-parallel group counts the same sequences
_WHOLE: Final = 'end_reason="completed"'
_AWAITED: Final = 'end_reason!="aborted"'
ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "Requests": (
        Panel(
            "Complete guided answers",
            "percentunit",
            (
                (
                    " / ".join(
                        _sum("model", _rate("sequences_total", _ONCE, ends)) for ends in (_WHOLE, _AWAITED)
                    ),
                    "{{model}}",
                ),
            ),
            "Share of sequences whose grammar ended, without those that the client aborted.",
        ),
        Panel("Ready pods", "short", ((f"sum by (model) ({_metric('ready')})", "{{model}}"),)),
        Panel(
            "Requests by status",
            "reqps",
            ((_sum("status", _rate("requests_total")), "{{status}}"),),
        ),
        Panel("Duration by kind of constraint", "s", _quantiles("request_duration_seconds", "kind")),
        Panel(
            "Errors by code",
            "reqps",
            ((_sum("error_code", _rate("requests_total", 'error_code!=""')), "{{error_code}}"),),
        ),
        Panel(
            "Guided sequences by end reason",
            "short",
            ((_sum("end_reason", _rate("sequences_total", _ONCE)), "{{end_reason}}"),),
            "Of the first rank of each tensor-parallel group; the others count the same sequences.",
        ),
        Panel(
            "Tokens of guided sequences", "short", ((_sum("rank", _rate("tokens_total")), "rank {{rank}}"),)
        ),
    ),
    "vLLM": (
        Panel("Time to first token", "s", _quantiles("vllm:time_to_first_token_seconds", "model")),
        Panel("Inter-token latency", "s", _quantiles("vllm:inter_token_latency_seconds", "model")),
        Panel(
            "Requests in the engine",
            "short",
            tuple(
                (_sum("model", _metric(f"vllm:num_requests_{state}")), f"{{{{model}}}}: {state}")
                for state in ("running", "waiting")
            ),
        ),
        Panel("Time in the engine's queue", "s", _quantiles("vllm:request_queue_time_seconds", "model")),
        Panel(
            "KV cache in use",
            "percentunit",
            ((f"max by (model) ({_metric('vllm:kv_cache_usage_perc')})", "{{model}}"),),
            "Of the engine with the highest use.",
        ),
        Panel(
            "Preemptions",
            "short",
            ((_sum("model", _rate("vllm:num_preemptions_total")), "{{model}}"),),
            "Requests that lost their KV cache to others and are computed again.",
        ),
    ),
    "Grammars": (
        Panel("Prepare, by where it was found", "s", _quantiles("grammar_prepare_seconds", "cache")),
        Panel("Compile, by backend", "s", _quantiles("grammar_compile_seconds", "backend")),
        Panel("Proof, by backend", "s", _quantiles("grammar_proof_seconds", "backend")),
        Panel("Load, by rank", "s", _quantiles("grammar_load_seconds", "rank")),
        Panel(
            "Grammar lookups by cache result",
            "reqps",
            ((_sum("result", _rate("grammar_cache_lookups_total")), "{{result}}"),),
        ),
        Panel(
            "Refusals by code",
            "reqps",
            ((_sum("error_code", _rate("grammars_refused_total")), "{{error_code}}"),),
        ),
        Panel(
            "Cached grammars",
            "bytes",
            (
                (f"sum({_metric('grammar_cache_bytes')})", "cached"),
                (f"sum({_metric('grammar_cache_leased_bytes')})", "in use"),
            ),
        ),
        Panel(
            "Evicted grammars",
            "short",
            ((f"sum({_rate('grammar_cache_evictions_total')})", "evicted"),),
        ),
    ),
    "Grammar workers": (
        Panel(
            "Workers and queue",
            "short",
            (
                (f"sum({_metric('grammar_workers_ready')})", "ready"),
                (f"sum({_metric('grammar_workers_busy')})", "busy"),
                (f"sum({_metric('grammar_compiles_queued')})", "compiles queued"),
            ),
        ),
        Panel(
            "Restarts by reason",
            "short",
            (
                (
                    _sum("reason", f"increase({_metric('grammar_worker_restarts_total')}[$__rate_interval])"),
                    "{{reason}}",
                ),
                (
                    _sum("rank", f"increase({_metric('matchers_restarts_total')}[$__rate_interval])"),
                    "matchers of rank {{rank}}",
                ),
            ),
        ),
        Panel(
            "Pods that refuse new grammars",
            "short",
            ((f"sum({_metric('grammar_service_exhausted')})", "pods without grammar workers"),),
        ),
    ),
    "Decoding": (
        Panel(
            "Time per mask row",
            "s",
            _ratio("rank", "mask_fill_seconds_total", "mask_fills_total", "rank {{rank}}"),
        ),
        Panel("Dearest fill of a sequence", "s", _quantiles("mask_fill_max_seconds", "rank")),
        Panel(
            "Wait for masks per step",
            "s",
            _ratio("rank", "mask_exposed_seconds_total", "decode_steps_total", "rank {{rank}}"),
            "Time that guided decoding adds to a step.",
        ),
        Panel(
            "Draft tokens accepted",
            "percentunit",
            _ratio(
                "model",
                "vllm:spec_decode_num_accepted_tokens_total",
                "vllm:spec_decode_num_draft_tokens_total",
                "{{model}}",
            ),
            "Of all requests, as vLLM counts them.",
        ),
        Panel(
            "Draft tokens of guided sequences accepted",
            "percentunit",
            _ratio("rank", "drafts_accepted_total", "drafts_proposed_total", "rank {{rank}}"),
        ),
        Panel(
            "Draft tokens that the grammar forbade",
            "percentunit",
            _ratio("rank", "drafts_forbidden_total", "drafts_proposed_total", "rank {{rank}}"),
        ),
        Panel(
            "Draft tokens per step, chosen by numTokens Auto",
            "short",
            (
                (f"max by (pod) ({_metric('draft_tokens')})", "{{pod}}"),
                (
                    _sum("pod", f"increase({_metric('draft_tokens_changes_total')}[$__rate_interval])"),
                    "{{pod}}: changes",
                ),
            ),
        ),
        Panel(
            "Logits processors, time per step",
            "s",
            _ratio("processor", "processor_seconds_total", "processor_steps_total", "{{processor}}"),
            "CPU time of a rank for all sequences with the processor; the batch waits for it.",
        ),
        Panel(
            "Logits processors: steps over budget, and sequences that ended",
            "short",
            (
                (_sum("processor", _rate("processor_steps_over_budget_total")), "{{processor}} over budget"),
                (
                    _sum("processor, error_code", _rate("processor_failures_total", _ONCE)),
                    "{{processor}}: {{error_code}}",
                ),
            ),
        ),
    ),
    "Agreement and telemetry": (
        Panel(
            "Differing digests by rank",
            "short",
            (
                (
                    _sum("rank", f"increase({_metric('rank_desyncs_total')}[$__rate_interval])"),
                    "rank {{rank}}",
                ),
            ),
        ),
        Panel(
            "Digests",
            "short",
            (
                (f"sum({_rate('digests_compared_total')})", "compared"),
                (f"sum({_rate('digests_lost_total')})", "lost"),
            ),
        ),
        Panel(
            "Spans",
            "short",
            (
                (f"sum({_rate('spans_exported_total')})", "exported"),
                (f"sum({_rate('spans_dropped_total')})", "dropped"),
            ),
        ),
        Panel(
            "Records lost in the pod",
            "short",
            (
                (f"sum({_rate('records_dropped_total')})", "dropped"),
                (f"sum({_rate('records_invalid_total')})", "invalid"),
            ),
        ),
    ),
    "Operator": (
        Panel(
            "GuidedModels by Ready",
            "short",
            ((_sum("status", _metric("operator_resources", 'condition="Ready"')), "{{status}}"),),
            "Of all namespaces, as reported by the leader.",
        ),
        Panel(
            "Replicas",
            "short",
            tuple(
                (_sum("model", _metric(f"operator_{kind}_replicas", _REPLICAS_OF)), f"{{{{model}}}}: {kind}")
                for kind in ("desired", "ready", "starting")
            ),
        ),
        Panel(
            "Failed reconciliations by reason",
            "ops",
            ((_sum("reason", _rate("operator_reconcile_errors_total")), "{{reason}}"),),
        ),
        Panel("Duration of a pass", "s", _quantiles("operator_reconcile_seconds", "outcome")),
        Panel("Wait for a pass", "s", _quantiles("operator_queue_wait_seconds", "pod")),
        Panel(
            "Requests to the API server by status",
            "reqps",
            ((_sum("code", _rate("operator_api_requests_total")), "{{code}}"),),
        ),
    ),
}
