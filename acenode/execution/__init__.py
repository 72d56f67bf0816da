"""Executing runs."""
