"""The measuring laboratory: what runs training code to check claims, and the checker never imports."""
