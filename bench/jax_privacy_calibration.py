"""The example configurations of jax_privacy, calibrated with dp_accounting's accountants and with this library's.

Run with ``python bench/jax_privacy_calibration.py`` where jax_privacy's head (2.3 to be) is installed with the heads of
dp_accounting and optax that it needs; add ``--json FILE`` to keep the numbers. Each row is one call of
``dp_accounting.calibrate_dp_mechanism`` for the same target, first with ``interop.Accountant``, then with the
accountant that the example uses: the noise multipliers found, and the process's CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import time

import dp_accounting
from jax_privacy import accounting

from jaxacct import interop

PLD, RDP = dp_accounting.pld.PLDAccountant, dp_accounting.rdp.RdpAccountant
SPECIAL, ADD = dp_accounting.NeighboringRelation.REPLACE_SPECIAL, dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE


def bands(iterations, count, expected, size):
    return lambda sigma: accounting.amplified_bandmf_event(
        sigma, iterations, num_bands=count, sampling_prob=min(1.0, expected * count / size)
    )


def cut(iterations, expected, size, largest):
    return lambda sigma: accounting.truncated_dpsgd_event(
        sigma, iterations, sampling_prob=expected / size, num_examples=size, truncated_batch_size=largest
    )


def zero_concentrated(sigma):
    return accounting.dpsgd_event(sigma, 500, sampling_prob=0.1, use_zcdp=True)


# Name, event of sigma, epsilon, their accountant, relation. The Shakespeare text has 15,684 sequences.
EXAMPLES = [
    ("dp_logistic_regression", bands(500, 4, 1000, 9000), 1.0, PLD, ADD),
    ("dp_sgd_transformer", bands(100, 1, 1000, 15684), 1.0, PLD, ADD),
    ("jax_api_example", bands(100 * 10000 // 256, 1, 256, 10000), 1.0, PLD, ADD),
    ("keras_api_example", bands(5 * 117, 1, 512, 512 * 117), 1.1, PLD, ADD),
    ("secure_noise_example", zero_concentrated, 1.0, RDP, ADD),
    ("jax_api_example, batches of at most 300", cut(100 * 10000 // 256, 256, 10000, 300), 1.0, PLD, SPECIAL),
    ("BandMFConfig, 10 epochs in 1,000 steps", bands(1000, 1, 600, 60000), 2.0, PLD, ADD),
    ("the same, batches of at most 700", cut(1000, 600, 60000, 700), 2.0, PLD, SPECIAL),
]


def calibrated(kind, event, epsilon, relation):
    start = time.process_time()
    try:
        sigma = dp_accounting.calibrate_dp_mechanism(lambda: kind(neighboring_relation=relation), event, epsilon, 1e-5)
    except Exception as problem:  # an accountant that cannot is a result
        return f"{type(problem).__name__}", time.process_time() - start
    return float(sigma), time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="Write the numbers to a file.")
    options = parser.parse_args()
    interop.Accountant().compose(dp_accounting.GaussianDpEvent(1.0)).get_epsilon(1e-5)
    rows = []
    for name, event, epsilon, kind, relation in EXAMPLES:
        ours, our_seconds = calibrated(interop.Accountant, event, epsilon, relation)
        theirs, their_seconds = calibrated(kind, event, epsilon, relation)
        row = {"example": name, "accountant": kind.__name__, "sigma": ours, "seconds": round(our_seconds, 2)}
        row |= {"their_sigma": theirs, "their_seconds": round(their_seconds, 1)}
        rows.append(row)
        print(row, flush=True)
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
