"""Memory of the real model class on fake tensors, in the installed releases."""
