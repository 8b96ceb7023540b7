"""The divergence guard: detects, explains and handles an abnormal update before its step; see docs/divergence.md.

An abnormal update is repeated under the recorder's hooks, which name the sub-layer where the problem shows first.
"""
