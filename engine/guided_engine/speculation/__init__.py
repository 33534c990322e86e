"""How many draft tokens a step gets, chosen by what steps take and drafts bring. Neither vLLM nor torch."""
