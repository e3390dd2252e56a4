"""Verify: what a listener's check of one request costs beside the signature check alone.

The subject is the whole decision over headers and raw body; the baseline is OpenSSL's Ed25519 over the same content,
called through the same library in the same thread. No stack is needed.
"""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from waybill.bench.core.pairs import Arm, PairedRun, abba
from waybill.contracts.envelope import delivery_id_text
from waybill.crypto.keys import Algorithm, jwks_document, new_key
from waybill.crypto.signing import Signer, signed_content
from waybill.crypto.verifying import Accept, SignatureHeaders, VerificationKeys, verify
from waybill.infra.clock import SystemClock
from waybill.kernel.errors import InvariantBroken
from waybill.kernel.ids import CommandId, DestinationName, Tenant

__all__ = ["VerifyOptions", "bench_verify"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """How much is verified: `requests` in each arm of each pair, with bodies of so many bytes."""

    requests: int = 5_000
    pairs: int = 10
    body_bytes: int = 1_000


class _Request:
    """One signed request, and both ways to look at it."""

    def __init__(self, body_bytes: int) -> None:
        self.now = SystemClock().now()
        key = new_key(Algorithm.ED25519, Tenant("bench"), self.now)
        stamp = int(self.now.timestamp())
        webhook_id = delivery_id_text(CommandId(uuid.uuid4()), DestinationName("crm"))
        self.body = b"x" * body_bytes
        header = Signer([key]).sign(webhook_id, stamp, self.body)
        self.headers = SignatureHeaders(webhook_id=webhook_id, timestamp=str(stamp), signature=header)
        self.keys = VerificationKeys.from_jwks(jwks_document([key]))
        private = Ed25519PrivateKey.from_private_bytes(key.secret.reveal())
        self.content = signed_content(webhook_id, stamp, self.body)
        self.public, self.signature = private.public_key(), private.sign(self.content)

    def subject(self, requests: int) -> None:
        """Decide so many times as a listener does."""
        for _ in range(requests):
            if not isinstance(verify(self.headers, self.body, self.keys, self.now), Accept):
                raise InvariantBroken("a genuine request was refused")

    def baseline(self, requests: int) -> None:
        """Check the signature so many times."""
        for _ in range(requests):
            self.public.verify(self.signature, self.content)


def _rate(work: Callable[[int], None], requests: int) -> float:
    started = time.perf_counter()
    work(requests)
    return requests / (time.perf_counter() - started)


def bench_verify(options: VerifyOptions, progress: Callable[[str], None]) -> dict[str, Any]:
    """Run the benchmark and return its report."""
    request = _Request(options.body_bytes)
    rates: dict[Arm, list[float]] = {Arm.SUBJECT: [], Arm.BASELINE: []}
    started = time.perf_counter()
    for number, arm in enumerate(abba(options.pairs)):
        progress(f"pair {number // 2 + 1} of {options.pairs}: {arm}")
        work = request.subject if arm is Arm.SUBJECT else request.baseline
        rates[arm].append(_rate(work, options.requests))
    run = PairedRun(subject=rates[Arm.SUBJECT], baseline=rates[Arm.BASELINE])
    return {
        "bench": "verify",
        "commands": options.requests * options.pairs,
        "bytes": options.requests * options.pairs * options.body_bytes,
        "seconds": round(time.perf_counter() - started, 2),
        "pairs": options.pairs,
        "durability": "none",
        "verified_per_s": round(run.subject_median),
        "openssl_per_s": round(run.baseline_median),
        "ratio_to_openssl": round(run.ratio, 3),
        "invalid": run.is_invalid,
    }
