"""What connects Ringfence with other tools: one module or package for each."""
