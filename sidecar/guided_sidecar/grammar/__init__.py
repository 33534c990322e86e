"""Everything about a grammar before a rank sees it; one folder for each process and step."""
