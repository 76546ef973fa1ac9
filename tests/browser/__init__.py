"""Real Chromium against the real services: what people see, by mouse, by keyboard, on a narrow screen, and when something is broken."""
