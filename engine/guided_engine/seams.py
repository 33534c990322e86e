"""Where each change of the ledger holds on to vLLM, by its minor version: what to look at when one is added.

For each version a line for every entry: the file and name that it changes there. Where two versions differ,
both lines say how.
"""

from typing import Final

SEAMS: Final = {
    "0.32": {
        "admission": "vllm/v1/engine/async_llm.py: AsyncLLM.add_request; entrypoints/openai/chat_completion/"
        "protocol.py: ChatCompletionRequest.resolve_reasoning_ended; vllm/parser/abstract_parser.py: "
        "DelegatingParser.set_prompt_token_ids, extract_reasoning",
        "sequence-failures": "vllm/v1/engine/output_processor.py: OutputProcessor.process_outputs, "
        "propagate_error, RequestState._new_completion_output; v1/engine/async_llm.py: AsyncLLM.shutdown",
        "unread-constraints": "vllm/entrypoints: to_sampling_params of ChatCompletionRequest and "
        "ResponsesRequest; to_beam_search_params of each request that has it, as beam_search/online.py makes "
        "parameters of its own",
        "forced-tools": "vllm/tool_parsers: structural_tag_registry.resolve_tool_strictness and "
        "utils._params_or_empty_object; vllm/parser/abstract_parser.py: "
        "DelegatingParser._apply_structural_tag, parser.engine.parser_engine.find_tool_properties",
        "validators": "vllm/v1/structured_output/backend_*.py: validate_*; vllm/parser",
        "core-detached": "vllm/v1/structured_output/__init__.py: StructuredOutputManager.grammar_init",
        "core-ends-sequences": "vllm/v1/core/sched/scheduler.py: Scheduler.update_from_output",
        "core-presence": "vllm/v1/engine/core.py: EngineCoreProc.run_busy_loop; "
        "vllm/v1/core/sched/output.py: SchedulerOutput.num_spec_tokens_to_schedule; "
        "vllm/v1/core/sched/scheduler.py: Scheduler.schedule, update_from_output, dynamic_sd_lookup",
        "rank-masks": "--worker-cls: load_model, then execute_model and sample_tokens of its runner",
        "draft-model-passes": "vllm/v1/worker/gpu/spec_decode/standalone_ar/speculator.py: propose, "
        "num_speculative_steps, draft_tokens",
        "cpu-async-scheduling": "vllm/platforms/cpu.py: 'async scheduling is not required on CPU'",
        "cpu-fork": "vllm/platforms/cpu.py: VLLM_WORKER_MULTIPROC_METHOD",
        "cpu-expand-kernel": "vllm/utils/cpu_triton_utils.py: _expand_kernel_impl",
        "cpu-top-k-without-rows": "vllm/v1/sample/ops/topk_topp_sampler.py: apply_top_k_only",
        "cpu-seeds-in-chunks": "vllm/v1/worker/gpu_model_runner.py: _bookkeeping_sync",
    },
}
