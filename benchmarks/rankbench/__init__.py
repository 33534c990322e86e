"""Guided decoding on a virtual GPU, everything but the GPU's own work being real.

`make bench-ranks` asks what guiding costs, `make bench-speculation` what speculation is worth.
"""
