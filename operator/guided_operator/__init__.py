"""The control plane: GuidedModels become pods, and their status says what is true."""
