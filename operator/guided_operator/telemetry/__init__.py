"""What the operator tells of itself: metrics, traces and logs. Names, once released, stay."""
