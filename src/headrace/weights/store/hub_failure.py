"""What goes wrong with the hub, in words that say what to do about it.

Messages of the library carry request ids and signed addresses; only kinds and status codes are
passed on, and what the library itself logs is rid of the signatures.
"""

from __future__ import annotations

import logging
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2
from huggingface_hub import errors as hub_errors

from headrace.errors import FetchError
from headrace.weights.store.model_name import HubModel

_QUERY = re.compile(r"(https?://[^\s?]+)\?\S+")


class WithoutSignatures(logging.Filter):
    """A filter that cuts the queries off addresses in log records: whoever has them can fetch the
    file.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Every record passes, with its arguments cleaned."""
        if isinstance(record.args, tuple):
            record.args = tuple(
                _QUERY.sub(r"\1", arg) if isinstance(arg, str) else arg for arg in record.args
            )
        return True


_SIGNATURES = WithoutSignatures()


PULL_AGAIN = "what has come so far is kept, so pull again goes on with it"


CHECK_NETWORK = (
    "check the network, HF_ENDPOINT (the address of another hub) and HTTPS_PROXY, or name a file "
    "or folder on this disk"
)

_CHAIN = 8


def _why_unreached(error: BaseException, endpoint: str) -> str:
    """What is known of a connection that did not come about; no address of a proxy, which may hold
    a password."""
    chain = [error]
    while len(chain) < _CHAIN and (deeper := chain[-1].__cause__ or chain[-1].__context__):
        chain.append(deeper)
    url = urlsplit(endpoint)
    host = url.hostname or endpoint
    is_proxied = url.scheme in getproxies() and not proxy_bypass(host)
    peer = f"the proxy that {url.scheme.upper()}_PROXY names" if is_proxied else host

    def has(*kinds: type[BaseException]) -> bool:
        return any(isinstance(each, kinds) for each in chain)

    if has(socket.gaierror):
        return f"there is no network, or {peer} is not known to it"
    if has(ssl.SSLCertVerificationError):
        return f"the certificate of {peer} is not trusted: set SSL_CERT_FILE"
    if has(ConnectionRefusedError):
        return f"{peer} refused the connection"
    if has(TimeoutError, httpx2.TimeoutException):
        return f"{peer} did not answer in time"
    return type(chain[min(1, len(chain) - 1)]).__name__


@contextmanager
def saying(
    model: HubModel, endpoint: str, cache: Path, remedy_unreached: str = PULL_AGAIN
) -> Iterator[None]:
    """Failures of the library and the network as FetchError.

    remedy_unreached: what helps where the hub cannot be reached.
    """
    page = f"{endpoint}/{model.repo}"
    logger = logging.getLogger("huggingface_hub.file_download")
    logger.addFilter(_SIGNATURES)  # adding it twice is adding it once
    try:
        yield
    except hub_errors.GatedRepoError as error:
        raise FetchError(
            f"{model}: the repository is gated; accept its licence at {page}, then set "
            "HF_TOKEN to a token that may read it (or run `hf auth login`)"
        ) from error
    except hub_errors.RevisionNotFoundError as error:
        raise FetchError(
            f"{model}: {model.repo} has no revision {model.revision!r} at {endpoint}"
        ) from error
    except hub_errors.RepositoryNotFoundError as error:
        raise FetchError(
            f"{model}: no repository {model.repo} at {endpoint}, or it is private; "
            "check the name, and set HF_TOKEN for one that is"
        ) from error
    except hub_errors.HfHubHTTPError as error:
        status = error.response.status_code
        remedy = "check HF_TOKEN"
        if status >= 500 or status == 429:
            remedy = "try again later"
        elif status == 404:
            remedy = "check the name, and HF_ENDPOINT if it is set"
        raise FetchError(f"{model}: {endpoint} answered {status}; {remedy}") from error
    except hub_errors.OfflineModeIsEnabled as error:
        raise FetchError(f"{model}: HF_HUB_OFFLINE is set: unset it to reach the hub") from error
    except hub_errors.HFValidationError as error:
        raise FetchError(f"{model}: not a repository's name: {error}") from error
    except (httpx2.UnsupportedProtocol, httpx2.InvalidURL) as error:
        raise FetchError(
            f"{model}: {endpoint!r} is not the address of a hub; set HF_ENDPOINT to http:// "
            "or https:// and a host, or unset it"
        ) from error
    except (httpx2.HTTPError, hub_errors.LocalEntryNotFoundError, ConnectionError) as error:
        why = _why_unreached(error, endpoint)
        raise FetchError(
            f"{model}: {endpoint} cannot be reached ({why}); {remedy_unreached}"
        ) from error
    except OSError as error:
        what = error.strerror or str(error).splitlines()[0]
        raise FetchError(f"{model}: cannot be fetched to {cache}: {what}") from error
    except UnicodeEncodeError as error:
        raise FetchError(
            f"{model}: HF_TOKEN has characters that no token has; copy it again from "
            f"{endpoint}/settings/tokens"
        ) from error
    except ValueError as error:
        # Its text may be the address of a proxy, with a password.
        raise FetchError(
            f"{model}: {endpoint} cannot be reached, or does not answer as a hub does "
            f"({type(error).__name__}); check HF_ENDPOINT, HTTP_PROXY and HTTPS_PROXY"
        ) from error
