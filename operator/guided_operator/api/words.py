"""Words and variables of `spec.engine` as vLLM, sidecar and collector read them."""

import re
from typing import Final

_NUMBER: Final = re.compile(r"-([0-9]+|[0-9]*\.[0-9]+)")  # a value that looks like an option
# By what way, and trusting whom, models are reached: the sidecar gets them as well, for the tokenizer.
WAY_TO_THE_HUB: Final = (
    *("ALL_PROXY", "AWS_CA_BUNDLE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "CURL_CA_BUNDLE"),
    *("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE"),
    *("all_proxy", "http_proxy", "https_proxy", "no_proxy"),
)
# How the pod tells of itself, for engine and sidecar; where it does is `spec.telemetry`'s to say.
TELEMETRY: Final = (
    *("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "OTEL_BSP_SCHEDULE_DELAY", "OTEL_RESOURCE_ATTRIBUTES"),
    *("OTEL_SDK_DISABLED", "OTEL_SERVICE_NAME"),
    *(
        f"OTEL_EXPORTER_OTLP_{signal}{word}"
        for signal in ("", "TRACES_")
        for word in (
            *("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY", "COMPRESSION", "HEADERS", "PROTOCOL"),
            "TIMEOUT",
        )
    ),
)


def is_number(word: str) -> bool:
    """Return whether a word that begins with a dash is a value."""
    return _NUMBER.fullmatch(word) is not None


def option(word: str) -> str:
    """Return the option that a word names, as vLLM reads it; "" for a value."""
    if not word.startswith("-") or is_number(word):
        return ""
    return word.split("=", 1)[0].replace("_", "-")


def switch(name: str) -> str:
    """Return the form of an option that turns it on, of a form that turns it off; else the option itself.

    vLLM has --no-enable-X for --enable-X, and since 0.33 --disable-X as well.
    """
    return name.replace("--no-", "--", 1).replace("--disable-", "--enable-", 1)
