"""Values as plain data, which JSON can hold."""


def pick(thing: object, names: str) -> dict[str, object]:
    """Describe fields of a value under their own names, in this order."""
    return {name: describe_value(getattr(thing, name)) for name in names.split()}


def describe_value(value: object) -> object:
    """Describe the value of a field or a fact."""
    return list(value) if isinstance(value, tuple) else value
