"""How long a grammar takes from Prepare to Prepared, beside upstream's compile."""
