# SPDX-License-Identifier: Apache-2.0
"""What fides itself makes of the connector; run by an interpreter that has fides.

    python tests/fides_package.py FOLDER ADDRESS TOKEN EMAIL

It has fides' own classes check both configurations and the dataset, fill in the
placeholders, and call the service at the address: the test request, the erasure, and
the status. After the first look at the status it waits for a line on its input.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import fides.api.service.connectors  # noqa: F401  (first, as fides' modules form a ring)
from fides.api.schemas.policy import ActionType
from fides.api.schemas.saas.async_polling_configuration import (
    AsyncPollingConfiguration,
)
from fides.api.schemas.saas.connector_template import ConnectorTemplate
from fides.api.schemas.saas.saas_config import SaaSConfig, SaaSRequest
from fides.api.service.async_dsr.handlers.polling_request_handler import (
    PollingRequestHandler,
)
from fides.api.service.async_dsr.handlers.polling_response_handler import (
    PollingResponseProcessor,
)
from fides.api.service.connectors.saas.authenticated_client import AuthenticatedClient
from fides.api.util.saas_util import load_config_from_string, map_param_values

# What fides gives to every request beside the identity.
STANDARD = {
    "uuid": "8a3c7f0e-52f4-4b7e-9d3a-1f2b3c4d5e6f",
    "iso_8601_datetime": "2026-03-02T12:00:00Z",
    "reply_to": "/api/v1/request-task/callback",
    "reply_to_token": "a.jwe.token",
}


def check_template(folder: Path, name: str) -> SaaSConfig:
    """Return a configuration that fides takes."""
    template = ConnectorTemplate(
        config=(folder / name).read_text(),
        dataset=(folder / "expunge_dataset.yml").read_text(),
        human_readable="expunge",
        authorization_required=False,
        supported_actions=[ActionType.erasure],
    )
    return SaaSConfig(**load_config_from_string(template.config))


def say(**values: object) -> None:
    """Write a line for the test that runs this."""
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def main(folder: Path, address: str, *, token: str, email: str) -> None:
    """Check the connector, and use it."""
    config = check_template(folder, "expunge_config.yml")
    waiting = check_template(folder, "expunge_callback_config.yml")
    values: dict[str, object] = {**STANDARD, "email": email}
    (endpoint,) = waiting.endpoints
    filled = map_param_values("delete", "x", endpoint.requests.delete, values)
    say(callback=json.loads(filled.body), supports=config.supported_actions)

    # All that is read of a connection; the class itself wants a database.
    connection = SimpleNamespace(key="expunge", secrets={"api_token": token})
    client = AuthenticatedClient(address, connection, config.client_config)

    def send(request: SaaSRequest) -> dict[str, object]:
        answer = client.send(map_param_values("delete", "x", request, values))
        found: dict[str, object] = answer.json()
        return found

    say(test=send(config.test_request))
    (endpoint,) = config.endpoints
    delete = endpoint.requests.delete
    accepted = send(delete)
    say(accepted=accepted)
    values["correlation_id"] = accepted[delete.correlation_id_path]
    polling = AsyncPollingConfiguration(**delete.async_config.configuration)
    status = polling.status_request
    for _ in range(2):
        answer = PollingRequestHandler(status).get_status_response(client, values)
        done = PollingResponseProcessor.evaluate_status_response(
            answer, status.status_path, status.status_completed_value
        )
        say(done=done)
        sys.stdin.readline()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], token=sys.argv[3], email=sys.argv[4])
