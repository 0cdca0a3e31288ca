"""What an attacker gets: bounds of the best attack on one record, and the noise that holds it to a target.

================================ =======================================================================================
function                         what it bounds
================================ =======================================================================================
`power`                          the true-positive rate of membership inference at a false-positive rate
`advantage`                      the most that the two rates can differ
`reconstruction`                 the success of reconstructing a record that is guessed with a given probability
`predictive_value`               how often "this record was in the data" is right, at a prior and a false-positive rate
`bayes_risk`                     the least probability of a wrong guess at a prior
`calibrate`                      the least noise with which one of them meets a target
================================ =======================================================================================

Each takes a mechanism, or the guarantee of a filter, and returns `Bounds` of the worse direction; the upper ones hold
against every attacker who sees everything but the record.
"""

from jaxacct.attacks.calibration import calibrate
from jaxacct.attacks.rates import advantage, bayes_risk, power, predictive_value, reconstruction

__all__ = ["advantage", "bayes_risk", "calibrate", "power", "predictive_value", "reconstruction"]
