"""Software bills of materials: CycloneDX, SPDX and Syft."""
