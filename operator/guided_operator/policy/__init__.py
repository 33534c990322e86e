"""Why a GuidedModel cannot run: its own fields, and what the installation allows."""
