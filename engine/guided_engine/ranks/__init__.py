"""Guided decoding in the ranks that sample: a matcher per sequence, masks and processors, nothing shared."""
