"""What is said of a run beside epsilon: a mu with its regret, and what an attacker gets."""
