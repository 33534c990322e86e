"""What building, testing and demonstrating GuidedModel needs, and no user installs."""
