"""What JSON-Schema-Test-Suite's cases make of us, and of each grammar library alone."""
