"""One pass over a GuidedModel: observe, plan, apply, report."""
