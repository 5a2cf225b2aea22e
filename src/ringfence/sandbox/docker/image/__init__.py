"""The images that come with ringfence: built once, reused while what they are made of stays the same."""

from ringfence.sandbox.docker.image.build import BuildOptions, Built, build_image
from ringfence.sandbox.docker.image.failure import ImageBuildFailed
from ringfence.sandbox.docker.image.plan import is_current
from ringfence.sandbox.docker.image.recipe import reference
from ringfence.sandbox.docker.image.stored import (
    StoredImage,
    find_image,
    is_there,
    list_images,
    remove_image,
)
from ringfence.sandbox.docker.image.targets import TARGETS, Target, TargetFacts

__all__ = [
    "TARGETS",
    "BuildOptions",
    "Built",
    "ImageBuildFailed",
    "StoredImage",
    "Target",
    "TargetFacts",
    "build_image",
    "find_image",
    "is_current",
    "is_there",
    "list_images",
    "reference",
    "remove_image",
]
