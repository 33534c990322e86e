"""The backend `xgrammar`."""
