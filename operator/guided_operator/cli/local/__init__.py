"""`guidedmodel run`: a pod as local processes."""
