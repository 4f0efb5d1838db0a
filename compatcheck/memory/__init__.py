"""Predict what each device of a run will hold: in closed form from facts, or traced on fake tensors."""
