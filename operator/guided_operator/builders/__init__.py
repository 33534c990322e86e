"""From a GuidedModel to what runs it: pure builders, the same for a cluster and a laptop."""
