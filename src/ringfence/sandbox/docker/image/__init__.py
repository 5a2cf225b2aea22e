"""The images that come with ringfence: built once, reused while what they are made of stays the same."""
