"""What every test shares."""

from hypothesis import settings

# No test is timed: a busy machine is slow, and that is no defect of what is tested.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
