"""The backend `guidance`: llguidance."""
