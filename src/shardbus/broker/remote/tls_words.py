"""Failures of TLS between nodes, in words that say what to do."""

from __future__ import annotations

import ssl
from typing import Final

_EXPIRED: Final = 10
_NOT_YET: Final = 9
_REASONS: Final = {
    "UNKNOWN_CA": "it does not trust the authority of our certificate: another cluster's, or one "
    "that was replaced",
    "CERTIFICATE_EXPIRED": "it says that our certificate has expired: make a new one with "
    "`shardbus cluster cert`",
    "CERTIFICATE_REQUIRED": "it wants a certificate, and we have shown none: give both sides "
    "--node-tls",
    "BAD_CERTIFICATE": "it says that our certificate is invalid",
    "WRONG_VERSION_NUMBER": "it does not speak TLS: give both sides --node-tls",
    "RECORD_LAYER_FAILURE": "it does not speak TLS: give both sides --node-tls",
    "HTTP_REQUEST": "it does not speak TLS: give both sides --node-tls",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it has shown no certificate: give it --node-tls",
    "UNSUPPORTED_PROTOCOL": "it does not speak TLS 1.3",
    "PROTOCOL_VERSION": "it does not speak TLS 1.3",
}


def tls_words(error: BaseException) -> str:
    """What is wrong, for an operator; the text of any other error as it is."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code == _EXPIRED:
            return "its certificate has expired: make a new one with `shardbus cluster cert`"
        if error.verify_code == _NOT_YET:
            return "its certificate is not valid yet: check the clocks of both machines"
        return (
            "its certificate is not signed by the authority of our cluster: another cluster's, or "
            f"one that was replaced ({error.verify_message})"
        )
    if isinstance(error, ssl.SSLError):
        for word, text in _REASONS.items():
            if word in (error.reason or ""):
                return text
        return f"TLS failed: {error.reason or error}"
    if isinstance(error, ConnectionResetError | ConnectionAbortedError):
        return (
            f"the peer closed the connection; its log may give the reason ({type(error).__name__})"
        )
    return str(error) or type(error).__name__
