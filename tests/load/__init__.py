"""What the gateway costs over its parts, how late a fallback is, and what the processes hold in memory."""
