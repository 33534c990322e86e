"""`make bench-ranks`: guided decoding on a virtual GPU, everything but the GPU's own work being real."""
