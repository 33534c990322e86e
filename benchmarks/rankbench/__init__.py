"""Guided decoding on a virtual GPU, everything but the GPU's own work being real; `gpu`: on a real one."""
