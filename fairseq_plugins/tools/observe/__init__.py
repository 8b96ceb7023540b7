"""Views into a model during and after training: recorder, guard, the papers' analyses."""
