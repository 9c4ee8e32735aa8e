"""The credentials and the region in the files of the AWS tools, which the client does not read itself.

Environment variables come first, as for these tools: this is for a machine that has only the files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kcompact.errors import RefusedError

_NEEDS_TOOLS = ("credential_process", "sso_session", "sso_start_url", "role_arn", "web_identity_token_file")
"""Settings of a profile whose credentials another program has to get."""


def settings_of_profile(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the client's settings from the profile, as far as the environment does not have them.

    The profile is `AWS_PROFILE`, or `default`. Empty without one. Raises RefusedError for a profile that is named but
    is in no file, and for one whose credentials another program gets.
    Source: the AWS SDKs' "Shared config and credentials files".
    """
    name = environment.get("AWS_PROFILE", "")
    home = Path(environment.get("HOME", "/nonexistent"))
    credentials = Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws" / "credentials")
    config = Path(environment.get("AWS_CONFIG_FILE") or home / ".aws" / "config")
    of_profile = _section(config, name or "default", f"profile {name or 'default'}")
    of_profile |= _section(credentials, name or "default")
    if name and not of_profile:
        raise RefusedError(path=credentials, problem=f"has no profile {name}, which AWS_PROFILE names")
    found = {}
    if "AWS_REGION" not in environment and "AWS_DEFAULT_REGION" not in environment and "region" in of_profile:
        found["region"] = of_profile["region"]
    if not environment.get("AWS_ACCESS_KEY_ID"):
        if "aws_access_key_id" in of_profile:
            found["access_key_id"] = of_profile["aws_access_key_id"]
            found["secret_access_key"] = of_profile.get("aws_secret_access_key", "")
            if "aws_session_token" in of_profile:
                found["token"] = of_profile["aws_session_token"]
        elif name and any(setting in of_profile for setting in _NEEDS_TOOLS):
            raise RefusedError(
                path=config,
                problem=f"another program gets the credentials of profile {name}, and kcompact does not start it",
                hint=f'Run: eval "$(aws configure export-credentials --profile {name} --format env)"',
            )
    return found


def _section(file: Path, *names: str) -> dict[str, str]:
    """Return the settings of the first section that a file has; empty if it has none or cannot be read."""
    import configparser

    parser = configparser.RawConfigParser()
    try:
        parser.read_string(os.fsdecode(file.read_bytes()))
    except (configparser.Error, OSError):
        return {}
    return next((dict(parser[name]) for name in names if parser.has_section(name)), {})
