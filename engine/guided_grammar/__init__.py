"""What ranks and grammar workers share: each grammar library behind one interface. Imports no vLLM."""
