"""The frontend: chat, glossary and inspector over the gateway."""
