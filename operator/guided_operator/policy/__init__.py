"""What a GuidedModel must fulfil to run: its own fields, and what the installation permits."""
