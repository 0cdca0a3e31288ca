"""What `check_step` answers: leaks, warnings, and what was and was not seen, as sentences."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Leak:
    """One thing that is wrong with a step.

    Attributes:
        kind: a word for it: "sensitivity", "output", "noise", "key", "sampler", "randomness" or "not finite".
        where: the output or release concerned, as a path in what the step returns; "" for the whole step.
        says: a sentence.
        severity: "critical": the guarantee is void. "theoretical": it is void for data that the step may never see.
    """

    kind: str
    where: str
    says: str
    severity: str = "critical"

    def __str__(self) -> str:
        return f"[{self.severity}] {self.says}"


@dataclasses.dataclass(frozen=True)
class Checked:
    """The answer of `check_step`; print it. It can refute that a step is private, and never prove that it is.

    Attributes:
        leaks: what voids the guarantee.
        warnings: what voids it for data that the step may never see.
        moved: the largest move of the noise's inputs that was seen, relative to the largest that is charged for.
        releases: how many arrays are released with noise.
        pairs: names of the neighbours that were tried.
        unseen: sentences about what this check did not see.
    """

    leaks: tuple[Leak, ...]
    warnings: tuple[Leak, ...]
    moved: float
    releases: int
    pairs: tuple[str, ...]
    unseen: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether no leak was found."""
        return not self.leaks

    def __str__(self) -> str:
        found = f"{len(self.leaks)} leak{'s' * (len(self.leaks) != 1)} found" if self.leaks else "No leak found"
        lines = [
            f"{found}: {self.releases} arrays with noise, {len(self.pairs)} pairs of neighbours, the largest move "
            f"{self.moved:.4g} of what was charged.",
            *(f"  {leak}" for leak in (*self.leaks, *self.warnings)),
            "This check can refute that a step is private. It cannot prove it. Not seen:",
            *(f"  - {sentence}" for sentence in self.unseen),
        ]
        return "\n".join(lines)
