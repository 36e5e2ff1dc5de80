"""K normals -> a scikit-learn outlier detector. Enters: arrays as people have them. Leaves: scores, decisions, maps.

Knows no training; answers that leave have scikit-learn's sign, positive for normal. Its public face is `fewone` itself.
"""
