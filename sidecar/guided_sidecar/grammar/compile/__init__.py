"""Compiling and proving one grammar. Runs in the fork server and in the grammar workers that it forks."""
