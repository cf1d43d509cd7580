# SPDX-License-Identifier: Apache-2.0
"""Laws: one file a protocol, run against every implementation in ``instances``."""
