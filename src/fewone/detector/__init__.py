"""K normals -> a scikit-learn outlier detector. Enters: arrays as people have them. Leaves: scores, decisions, maps.

Knows no training; the sign flips in `few_shot_detector` and nowhere else. Its public face is `fewone` itself.
"""
